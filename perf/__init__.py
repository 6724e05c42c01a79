"""Measurements of Gauntlet itself, as ratios from one side-by-side run. Not part of the package."""
