// Package llm imports measurements of language models (formats/importer/llmruns) into a profile.
package llm
