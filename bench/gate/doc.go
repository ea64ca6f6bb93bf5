// Command gate measures how far the verdict of `plan check` can be relied on, by
// profiles of one machine that were taken at different times, quiet and busy ones:
//
//   - false alarms: a plan made from one profile, checked with another of the same
//     models;
//   - what is found: the same, with one model's times 5 % longer;
//   - what three profiles a side find: draws of six profiles, one side 3 % longer;
//   - how far two profiles lie apart, see check.SteadyBetweenRuns.
//
// testdata/profiles.json.gz holds the profiles that were taken for it. -add puts
// further ones in, as plan profile wrote them:
//
//	plan profile demo/models/*.onnx --batches 1,2,4 --budget 15s --realtime -o p.json
//	bin/bench-gate -add p.json
//
// The files:
//
//	main.go      flags, figures
//	profiles.go  the profiles: reading, adding, scaling
//	verdicts.go  pairs and draws before the gate
//
//	make bench NAME=gate
package main
