"""What every part of nsysflow uses: errors, units, names, files, the terminal."""
