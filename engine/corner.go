package engine

// CopyCorner copies the part that two tensors have in common, from the first corner on. Where dst is larger, the
// rest of it is zeroed. size is that of an element in bytes. The two may be the same memory if dst is nowhere
// larger.
func CopyCorner(dst []byte, dstShape []int64, src []byte, srcShape []int64, size int) {
	row, last := int64(size), len(dstShape)-1
	for last >= 0 && dstShape[last] == srcShape[last] {
		row *= dstShape[last]
		last--
	}
	if last < 0 {
		copy(dst, src)
		return
	}
	copyRows(dst, dstShape[:last+1], src, srcShape[:last+1], row)
}

// copyRows copies rows of the last dimension, whose elements take unit bytes.
func copyRows(dst []byte, dstShape []int64, src []byte, srcShape []int64, unit int64) {
	n := min(dstShape[0], srcShape[0])
	if len(dstShape) == 1 {
		copy(dst[:n*unit], src[:n*unit])
		return
	}
	to, from := unit, unit
	for i := range dstShape[1:] {
		to, from = to*dstShape[i+1], from*srcShape[i+1]
	}
	for i := range n {
		copyRows(dst[i*to:], dstShape[1:], src[i*from:], srcShape[1:], unit)
	}
}
