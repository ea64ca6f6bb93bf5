// Command ranges measures how well the time of a stage is estimated from the
// blocks and the whole model (docs/methods.md, "Times of ranges"): random ranges of
// the nine CNNs and the OCR models are measured in one piece, in the same rounds as
// their blocks and wholes, and compared in CPU time.
//
//	measure.go   profiles with random ranges; a profile that is there is extended
//	evaluate.go  estimated against measured, per model and batch
//
//	make bench NAME=ranges                     half an hour of one core
//	bin/bench-ranges -profile FILE -rounds 31 -batches 1,2,4,8
//
// Blocks and wholes of a model that the profile holds are not measured again.
package main
