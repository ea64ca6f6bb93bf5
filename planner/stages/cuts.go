package stages

import "inferplan/formats"

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

// CutAfterBlock returns how the tensors after a block pass to the next stage: their bytes, names and data type.
// They pass as float16 if there is a network between the stages and the profile shows that the answers stay the
// same, or if no other size is known (measurements by others count the bytes that crossed in their setting). On
// one host float16 gains nothing. Negative bytes allow no cut there. dtype is the option that may force float32.
func CutAfterBlock(b *formats.Block, network bool, dtype string) Cut {
	c := Cut{Bytes: b.CutBytesFP32.Bytes(), DType: "FP32"}
	for i := range b.Cut {
		c.Tensors = append(c.Tensors, b.Cut[i].Name)
	}
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
