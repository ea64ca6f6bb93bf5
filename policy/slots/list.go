package slots

// List is a doubly linked list of numbers: those of its ends, or -1 if it is empty, and how many it has.
type List struct{ First, Last, Len int32 }

// EmptyList is a list without numbers.
var EmptyList = List{First: -1, Last: -1}

// Links has, by number, the neighbours of the numbers in lists; -1 stands for none. Lists may share it, as long as no
// number is in two of them at once.
type Links []struct{ Previous, Next int32 }

// InsertAfter inserts a number, which is in no list, behind another one of the list or, for -1, at the front.
func (links *Links) InsertAfter(list *List, previous, number int32) {
	for int(number) >= len(*links) {
		*links = append(*links, struct{ Previous, Next int32 }{-1, -1})
	}
	entry, next := &(*links)[number], list.First
	if previous >= 0 {
		next = (*links)[previous].Next
		(*links)[previous].Next = number
	} else {
		list.First = number
	}
	if next >= 0 {
		(*links)[next].Previous = number
	} else {
		list.Last = number
	}
	entry.Previous, entry.Next = previous, next
	list.Len++
}

// Append puts a number, which is in no list, at the end of a list.
func (links *Links) Append(list *List, number int32) { links.InsertAfter(list, list.Last, number) }

// Remove takes a number out of the list that has it.
func (links Links) Remove(list *List, number int32) {
	entry := &links[number]
	if entry.Previous >= 0 {
		links[entry.Previous].Next = entry.Next
	} else {
		list.First = entry.Next
	}
	if entry.Next >= 0 {
		links[entry.Next].Previous = entry.Previous
	} else {
		list.Last = entry.Previous
	}
	entry.Previous, entry.Next = -1, -1
	list.Len--
}
