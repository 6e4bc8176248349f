"""`python -m app` is `ferry`."""

from app.cli import main

if __name__ == "__main__":
    main()
