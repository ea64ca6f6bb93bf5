// Package seeded gives every user of randomness a stream of its own, keyed by
// one seed and the stream's name.
//
// Streams are independent of each other: adding one, or drawing more from one,
// changes no other, so that results stay comparable when the code around them
// grows. Names say what the stream is for, with the indexes that make it
// unique: "arrivals/resnet50", "run/3/service".
//
// The generator is PCG-DXSM of math/rand/v2, seeded with the first 16 bytes of
// SHA-256 over the seed (8 bytes, big-endian) and the name. Both are pinned by
// golden values in the tests: plans and reports that were made with a seed can
// be made again.
package seeded
