// Package gguf writes small language models for llama.cpp: files of the format
// GGUF (version 3) with the Llama architecture and random weights. Real servers
// load and run them, so that queues, swaps and evictions are tested against foreign
// code without downloads. What they answer means nothing. It is the same for the
// same seed.
//
//	file.go   the container: header, fields, tensors
//	model.go  the network and its vocabulary
//
// What tests may rely on:
//
//   - A character of ASCII is a token, so prompts have as many tokens as characters,
//     and a text sent back gives the tokens that it was made of.
//   - Answers consist of small letters and spaces, and a token hardly follows itself:
//     some servers end an answer that repeats.
//   - An answer ends only at its limit.
//   - A chat template that only joins the messages, so that a chat continues as a
//     completion does.
package gguf
