"""Pictures of a comparison: intervals of all policies, who dropped out when, and differences to the leader."""
