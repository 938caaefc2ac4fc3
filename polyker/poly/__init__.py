"""The polyhedral side: binding, domains, access relations, dependences."""
