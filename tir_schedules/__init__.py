"""Part of EPU."""
