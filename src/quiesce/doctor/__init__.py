"""`quiesce doctor`: would this configuration leak or hang? Reads configurations of Quiesce, SGLang and vLLM."""
