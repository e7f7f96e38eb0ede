"""The simulated cluster behind the API: scheduler, controllers and kubelets.

Nothing polls, and no pod or node has a task of its own: a thousand idle nodes cost almost nothing.
"""
