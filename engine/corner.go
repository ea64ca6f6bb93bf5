package engine

// CopyCorner copies the part that two tensors have in common, from the first corner on. Where dst is larger, the
// rest of it is zeroed. size is that of an element in bytes. The two may be the same memory if dst is nowhere
// larger.
func CopyCorner(dst []byte, dstShape []int64, src []byte, srcShape []int64, size int) {
	row, lastDim := int64(size), len(dstShape)-1
	for lastDim >= 0 && dstShape[lastDim] == srcShape[lastDim] {
		row *= dstShape[lastDim]
		lastDim--
	}
	if lastDim < 0 {
		copy(dst, src)
		return
	}
	copyRows(dst, dstShape[:lastDim+1], src, srcShape[:lastDim+1], row)
}

// copyRows copies rows of the last dimension, whose elements take unit bytes.
func copyRows(dst []byte, dstShape []int64, src []byte, srcShape []int64, unit int64) {
	n := min(dstShape[0], srcShape[0])
	if len(dstShape) == 1 {
		copy(dst[:n*unit], src[:n*unit])
		return
	}
	to, start := unit, unit
	for i := range dstShape[1:] {
		to, start = to*dstShape[i+1], start*srcShape[i+1]
	}
	for i := range n {
		copyRows(dst[i*to:], dstShape[1:], src[i*start:], srcShape[1:], unit)
	}
}
