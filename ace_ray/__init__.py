"""ace_ray: distributed batch evaluation of LLM tool use, on Ray and vLLM."""

__version__ = "0.1.0"
