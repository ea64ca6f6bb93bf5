package slots

// Take returns the number of a free slot of a list, or of a new one at its end. The caller that frees a slot
// appends its number to `free`; the old value stays in the slot until it is overwritten.
func Take[T any](list *[]T, free *[]int32) int32 {
	if freeCount := len(*free); freeCount > 0 {
		slot := (*free)[freeCount-1]
		*free = (*free)[:freeCount-1]
		return slot
	}
	var empty T
	*list = append(*list, empty)
	return int32(len(*list) - 1)
}
