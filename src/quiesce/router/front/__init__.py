"""Fronts: each worker under an HTTP port of its own, with SGLang's endpoints, for routers that are not ours."""
