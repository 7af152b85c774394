"""Every knob, declared: values, scope, neutral value and safety. Needs no lab."""
