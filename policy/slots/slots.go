package slots

// Take returns the number of a slot of list that is free, or else of a new one at its end. Whoever
// frees a slot appends its number to free; what was in it stays until then.
func Take[T any](list *[]T, free *[]int32) int32 {
	if n := len(*free); n > 0 {
		slot := (*free)[n-1]
		*free = (*free)[:n-1]
		return slot
	}
	var empty T
	*list = append(*list, empty)
	return int32(len(*list) - 1)
}
