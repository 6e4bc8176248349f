"""What calls cost by their rows: curves, and what a call takes of the machine. No I/O, no clock."""
