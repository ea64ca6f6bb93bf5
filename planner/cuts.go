package planner

import "inferplan/formats"

// minAgreement is the share of samples whose top answer must stay the same for
// a cut to cross as float16.
const minAgreement = 0.99

// cut is what crosses after a block, per sample.
type cut struct {
	bytes   int64 // negative: not known, so no cut there
	dtype   string
	tensors []string
}

// cutAfter decides how the tensors after a block cross. They cross as float16
// where a network is between the stages and the profile shows that the answers
// stay the same, or knows no other size (measurements by others count the bytes
// that crossed in their setting). On one host nothing is gained by it.
func cutAfter(b *formats.Block, network bool, dtype string) cut {
	c := cut{bytes: b.CutBytesFP32, dtype: "FP32"}
	for i := range b.Cut {
		c.tensors = append(c.tensors, b.Cut[i].Name)
	}
	only16 := b.CutBytesFP32 == 0 && b.CutBytesFP16 > 0
	proven := b.FP16 != nil && b.FP16.Top1Agreement >= minAgreement
	switch {
	case only16 && dtype != CutsFP32:
		c.bytes, c.dtype = b.CutBytesFP16, "FP16"
	case only16:
		c.bytes = -1
	case network && b.CutBytesFP16 > 0 && proven && dtype != CutsFP32:
		c.bytes, c.dtype = b.CutBytesFP16, "FP16"
	case b.CutBytesFP32 == 0 && network:
		c.bytes = -1 // unknown: no time can be promised for it
	}
	return c
}
