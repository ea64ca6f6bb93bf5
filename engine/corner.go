package engine

// CopyCorner copies the elements that two tensors of the same rank have in common: those whose index lies, in every
// dimension, within both shapes. It pads a tensor to a larger shape, and cuts the padding off again. The rest of dst
// stays as it was (zeros in new memory). size is that of an element in bytes. The two may be the same memory if dst
// is nowhere larger.
func CopyCorner(dst []byte, dstShape []int64, src []byte, srcShape []int64, size int) {
	// The last dimensions that both have in the same size lie together in memory, and are copied as one unit.
	unit, lastDim := int64(size), len(dstShape)-1
	for lastDim >= 0 && dstShape[lastDim] == srcShape[lastDim] {
		unit *= dstShape[lastDim]
		lastDim--
	}
	if lastDim < 0 { // the shapes are equal
		copy(dst, src)
		return
	}
	copyRows(dst, dstShape[:lastDim+1], src, srcShape[:lastDim+1], unit)
}

// copyRows copies the common part of two tensors whose elements take unit bytes, dimension after dimension: the last
// one in a single piece, those before it by a call for each index. The shapes end before the dimensions that make up
// a unit.
func copyRows(dst []byte, dstShape []int64, src []byte, srcShape []int64, unit int64) {
	n := min(dstShape[0], srcShape[0])
	if len(dstShape) == 1 {
		copy(dst[:n*unit], src[:n*unit])
		return
	}

	// A step of the first dimension skips all elements of the others.
	dstStride, srcStride := unit, unit
	for i := range dstShape[1:] {
		dstStride, srcStride = dstStride*dstShape[i+1], srcStride*srcShape[i+1]
	}
	for i := range n {
		copyRows(dst[i*dstStride:], dstShape[1:], src[i*srcStride:], srcShape[1:], unit)
	}
}
