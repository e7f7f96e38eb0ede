"""The simulated cluster behind the API: scheduler, controllers, disruption budgets, kubelets, node lifecycle.

Everything here reacts to the store's change stream or to one heap of timers; nothing polls, and no
pod or node has a task of its own, so that a thousand idle nodes cost next to nothing.
"""
