package instrument_test

import (
	"os"

	"inferplan/bench/instrument"
)

func ExampleTable() {
	t := instrument.Table{Columns: []string{"policy", "in time %"}}
	t.Add("edf", 93.5)
	t.Add("fcfs", 71)
	t.Note("%d seeds", 5)
	t.Markdown(os.Stdout)
	// Output:
	// | policy | in time % |
	// |:-------|:----------|
	// | edf    | 93.5      |
	// | fcfs   | 71        |
	//
	// 5 seeds
}
