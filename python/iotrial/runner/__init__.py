"""Runs trials: joins the plan, the lab, the probe and the store."""
