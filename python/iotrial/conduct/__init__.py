"""The conductor: joins plan, lab, probe and store into a trial."""
