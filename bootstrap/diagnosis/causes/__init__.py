"""Says why a driver, a task or an actor failed, as the first explainer that knows it says."""
