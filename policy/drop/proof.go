package drop

import "time"

// proof says that a queue could be served earliest deadline first from a time
// on, with so many tasks more: of any deadline, and of late ones. Each full batch
// that is taken from the low end moves the time on by a run, so that what is left
// is as early as before. The queue has to be counted again only after many tasks.
type proof struct {
	from         time.Duration // start, run and what is behind; with several applications not used
	late         time.Duration // deadlines that only concern the later half of the batches
	early, spare int
}

func (f *proof) holds(from time.Duration) bool { return f.early >= 0 && f.spare >= 0 && from <= f.from }

func (f *proof) void() { f.spare = -1 }

// add takes in a further task.
func (f *proof) add(deadline time.Duration) {
	f.spare--
	if deadline < f.late {
		f.early--
	}
}
