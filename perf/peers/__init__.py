"""The engines that Penstock is measured against: how each is installed, started and read."""
