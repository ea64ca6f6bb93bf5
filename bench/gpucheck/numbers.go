package gpucheck

import (
	"encoding/binary"
	"iter"
	"maps"
	"math"
)

func mapsKeys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

func putFloat32(b []byte, v float32) { binary.LittleEndian.PutUint32(b, math.Float32bits(v)) }

func float32s(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}
