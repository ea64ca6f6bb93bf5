// Command ranges measures how well the time of a stage is estimated from the
// blocks and the whole model (docs/methods/pool.md, "Times and rates"): random ranges of
// the nine CNNs and the OCR models are measured in one piece, in the same rounds as
// their blocks and wholes, and compared in CPU time.
//
//	make bench NAME=ranges                     an hour of one core
//	make bench NAME=ranges ARGS='-rounds 31'
//
// Blocks and wholes of a model that the profile in the folder of results holds are not
// measured again.
package main
