package stages

import "inferplan/formats"

// What the user may say of how cuts cross.
const (
	CutsAuto = "auto" // float16 where the profile shows that answers stay the same
	CutsFP32 = "fp32"
)

// minAgreement is the share of samples whose top answer must stay the same for
// a cut to cross as float16.
const minAgreement = 0.99

// Cut is what crosses after a block, per sample.
type Cut struct {
	Bytes   int64 // negative: not known, so no cut there; zero: nothing crosses
	DType   string
	Tensors []string
}

// CutAfter decides how the tensors after a block cross. They cross as float16
// where a network is between the stages and the profile shows that the answers
// stay the same, or knows no other size (measurements by others count the bytes
// that crossed in their setting). On one host nothing is gained by it.
func CutAfter(b *formats.Block, network bool, dtype string) Cut {
	c := Cut{Bytes: b.CutBytesFP32.Bytes(), DType: "FP32"}
	for i := range b.Cut {
		c.Tensors = append(c.Tensors, b.Cut[i].Name)
	}
	only16 := !b.CutBytesFP32.Known() && b.CutBytesFP16.Known()
	proven := b.FP16 != nil && b.FP16.Top1Agreement >= minAgreement
	switch {
	case only16 && dtype != CutsFP32:
		c.Bytes, c.DType = b.CutBytesFP16.Bytes(), "FP16"
	case only16:
		c.Bytes = -1
	case network && b.CutBytesFP16.Known() && proven && dtype != CutsFP32:
		c.Bytes, c.DType = b.CutBytesFP16.Bytes(), "FP16"
	case !b.CutBytesFP32.Known():
		c.Bytes = -1 // unknown: no time can be promised for it
	}
	return c
}
