"""Figures as inline SVG, drawn by matplotlib and coloured by the page's style sheet."""
