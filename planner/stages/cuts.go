package stages

import (
	"inferplan/formats"

	"inferplan/planner/lists"
)

// The values of the option for the type in which cuts cross.
const (
	CutsAuto = "auto" // float16 if the profile shows that answers stay the same
	CutsFP32 = "fp32"
)

// minAgreement is the share of samples whose top answer must stay the same for a cut to cross as
// float16.
const minAgreement = 0.99

// Cut describes what crosses after a block, per sample.
type Cut struct {
	Bytes   int64 // negative if unknown, so that no cut is possible; 0 if nothing crosses
	DType   string
	Tensors []string
}

// CutAfterBlock returns the bytes of a sample, the names and the data type of the tensors that pass from a block to the
// next stage, if a model is cut behind the block. The type is float32 with these exceptions. It is float16 if network
// is true, which says that stages may be on both sides of a network, and the profile shows that answers stay the
// same: on one host float16 gains nothing. It is float16, too, if the profile only has the size as float16, as
// profiles that were imported may. dtype is the option cut-dtype, CutsFP32 to allow float32 alone. If the size is
// unknown, or known only as a forbidden float16, Bytes is negative: no cut is allowed there.
func CutAfterBlock(b *formats.Block, network bool, dtype string) Cut {
	c := Cut{Bytes: b.CutBytesFP32.Bytes(), DType: "FP32"}
	c.Tensors = lists.Map(len(b.Cut), func(i int) string { return b.Cut[i].Name })
	only16 := !b.CutBytesFP32.IsKnown() && b.CutBytesFP16.IsKnown()
	proven := b.FP16 != nil && b.FP16.Top1Agreement >= minAgreement
	switch {
	case only16 && dtype != CutsFP32:
		c.Bytes, c.DType = b.CutBytesFP16.Bytes(), "FP16"
	case only16:
		c.Bytes = -1
	case network && b.CutBytesFP16.IsKnown() && proven && dtype != CutsFP32:
		c.Bytes, c.DType = b.CutBytesFP16.Bytes(), "FP16"
	case !b.CutBytesFP32.IsKnown():
		c.Bytes = -1 // no time can be promised for an unknown size
	}
	return c
}
