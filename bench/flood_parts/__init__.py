"""What `bench.floods` sends, who sends it, and who asks meanwhile. Only that script and its tests import from here."""
