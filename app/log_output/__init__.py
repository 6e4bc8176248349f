"""How lines of the log leave a process without making it wait: outputs that say that they are full, and a thread that
writes what they had no room for; and text that a terminal may show. Any part may import it; standard library only.
"""
