"""The simulated cluster behind the API: scheduler, controllers and kubelets.

Nothing polls: a thousand idle nodes cost almost nothing.
"""
