"""The output of log lines without waiting for a reader: outputs that say that they are full, a thread for lines that
had no room, and text that a terminal may show. Any part may import it; standard library only.
"""
