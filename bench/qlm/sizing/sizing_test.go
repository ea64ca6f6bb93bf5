package sizing

import (
	"context"
	"os"
	"strconv"
	"testing"

	"inferplan/bench/qlm/fleet"
)

func TestTry(t *testing.T) {
	d, err := fleet.Open("../../../../shared/data")
	if err != nil {
		t.Skip(err)
	}
	n, _ := strconv.Atoi(os.Getenv("CASE"))
	k, _ := strconv.Atoi(os.Getenv("COMP"))
	f, err := Floor(d, &Cases[n])
	if err != nil {
		t.Fatal(err)
	}
	x, err := Count(context.Background(), d, &Cases[n], &Competitors[k])
	t.Logf("%s, %s: floor %d, %+v %v", Cases[n].Name, Competitors[k].Name, f, x, err)
}
