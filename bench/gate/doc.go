// Command gate measures how far the verdict of `plan check` can be relied on, by
// profiles of one machine that were taken at different times, quiet and busy ones:
//
//   - false alarms: a plan made from one profile, checked with another of the same
//     models;
//   - what is found: the same, with one model's times 5 % longer;
//   - what three profiles a side find: draws of six profiles, one side 3 % longer.
//
// testdata/profiles.json.gz holds the profiles that were taken for it, as a list by
// time, of which each was made by
//
//	plan profile demo/models/*.onnx --batches 1,2,4 --budget 15s --realtime -o p.json
//
//	make bench NAME=gate
package main
