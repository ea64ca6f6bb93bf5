// Package llmserver measures a running server of language models from outside, and
// makes an entry of a profile of it.
//
//	r, err := llmserver.Run(ctx, llmserver.Options{Server: s, Model: "m", Device: "L40S", Out: "profile.json"})
//
// # What is measured
//
//   - prefill: a prompt alone, sent until its first token, less a round trip that
//     asks for nothing;
//   - decode: sequences side by side, the mean gap between their tokens while all of
//     them decode;
//   - beside: a prompt that comes while sequences decode, from their last token
//     before it to the one that comes with its first;
//   - load, unload, sleep, wake: by the server's own endpoints; swap: a request for
//     the model while another one is loaded.
//
// Capacity, sequences at once and context are read from the server. What it does
// not tell stays open: a KV capacity that is computed spoils every prediction.
//
// # How
//
// The server is asked once what things cost about. The points of a grid (points.go)
// that fit into the budget are then measured in rounds (run.go), so that a
// disturbance hits one sample of many points and not all of one. Each sample is
// appended to a file beside the profile: an interrupted run goes on from there.
// The means of a point's samples are fitted (fit.go): serving takes what they took on
// average, and waits grow with it. The interval is that of all of them.
// Prompts differ in their first words, so that no cache of prefixes helps.
package llmserver
