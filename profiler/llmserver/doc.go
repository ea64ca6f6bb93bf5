// Package llmserver measures a running server of language models from outside, and makes an entry of a profile
// from it.
//
//	r, err := llmserver.Run(ctx, llmserver.Options{Server: s, Model: "m", Device: "L40S", OutPath: "profile.json"})
//
// Vocabulary: a point is a kind of sample with its numbers of sequences and tokens; points of the grid are
// measured in rounds. The subject of samples is the model on its devices.
//
// # What is measured
//
//   - prefill: a prompt alone, from sending it until its first token, minus an empty round trip;
//   - decode: concurrent sequences, the mean gap between their tokens while all of them decode;
//   - beside: a prompt that arrives while sequences decode, from their last token before it to the
//     token that comes with the prompt's first one;
//   - load, unload, sleep, wake: by the server's own endpoints; swap: a request for the model while
//     another one is loaded.
//
// Capacity, number of concurrent sequences and context are read from the server. What it does not report is left
// open, because a computed KV capacity spoils every prediction.
//
// # How
//
// First the server is asked for rough costs (measure.go). Then the points of a grid (points.go) that fit into the
// budget are measured in rounds (run.go), so that a disturbance affects one sample of many points and not all of
// one. Each sample is appended to a file beside the profile (file.go), from which an interrupted run continues.
// The means of a point's samples are fitted (fit.go), because serving takes the mean time and queues grow with it.
// The interval is that of all samples. Prompts differ in their first words, so that no prefix cache helps.
// loads.go measures load times.
package llmserver
