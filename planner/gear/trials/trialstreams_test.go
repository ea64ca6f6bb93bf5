package trials

import (
	"testing"
	"time"
)

// blocksOf returns the blocks of a stream with a share of late requests in each.
func blocksOf(late float64) []runBlock {
	blocks := make([]runBlock, streamRunFactor*blocksPerRun)
	for i := range blocks {
		blocks[i] = runBlock{lateShare: late + .01*float64(1-2*(i%2)), tailLatency: 500 * time.Millisecond}
	}
	return blocks
}

// One stream that is late does not refuse a gear whose other streams are early; several do, and
// so does what eight streams like these would not confirm.
func TestOneStreamDoesNotDecide(t *testing.T) {
	const limit = .05
	judged := func(lates ...float64) (keeps, hopeless bool) {
		e := trialEvidence{busiestLoad: .8}
		for _, late := range lates {
			e.addStream(blocksOf(late))
		}
		return e.judgeGear(time.Second, limit)
	}
	if keeps, hopeless := judged(.055); keeps || hopeless {
		t.Errorf("after one late stream: passed %v, hopeless %v", keeps, hopeless)
	}
	if keeps, hopeless := judged(.052, .03, .029); keeps || hopeless {
		t.Errorf("one late stream of three: passed %v, hopeless %v", keeps, hopeless)
	}
	if keeps, hopeless := judged(.062, .062); keeps || !hopeless {
		t.Errorf("after two late streams: passed %v, hopeless %v", keeps, hopeless)
	}
	if keeps, _ := judged(.052, .03, .029, .031, .029, .03, .027, .032); !keeps {
		t.Error("one late stream of eight refuses a gear")
	}
	if keeps, _ := judged(.02); !keeps {
		t.Error("one early stream does not pass")
	}
}
