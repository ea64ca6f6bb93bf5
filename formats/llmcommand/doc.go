// Package llmcommand knows the commands that start servers of language models: how vLLM, SGLang and llama.cpp are
// called, and what their options are named. Exports write such commands, and importers read them.
//
// The words of this package:
//
//   - Program: a server of language models with the names of its options.
//   - Settings: the options of a server, as the words of its command set them.
//   - Adapter: a LoRA adapter, which a server loads beside its model and serves under a name of its own.
//
// The files, in the order of reading:
//
//	program.go   the programs: names, options, and what holds where an option is absent
//	words.go     options among the words of a command
//	settings.go  the words of a command to settings
package llmcommand
