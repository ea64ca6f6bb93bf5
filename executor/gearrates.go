package executor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"inferplan/executor/drift"
)

// ErrNoRates is returned when the plan in force has no gears, for which alone rates are kept.
var ErrNoRates = errors.New("the plan in force has no gears: rates are kept for gear plans")

// WriteRates writes the request rates of the last seconds (0 stands for all that are kept) since the gear plan came into force,
// as CSV in the form of `cascade.qps.measured` of a workload.
func (x *Executor) WriteRates(w io.Writer, seconds int) error {
	c := x.core.Load()
	if c == nil {
		return ErrNoRates
	}
	answer, ok := c.Answerer.(interface{ SeenRates() *drift.RateHistory })
	if !ok {
		return ErrNoRates
	}
	return answer.SeenRates().WriteCSV(w, seconds)
}

// serveRates handles GET /rates of the metrics server: it answers with the requests that arrived in each second, as CSV
// (see RateHistory.WriteCSV). With ?last=N it answers with the last N seconds, and else with all that are stored. If the
// plan is no gear plan and so records no rates, it answers 404.
func (x *Executor) serveRates(w http.ResponseWriter, r *http.Request) {
	seconds := 0
	if text := r.FormValue("last"); text != "" {
		var err error
		if seconds, err = strconv.Atoi(text); err != nil || seconds < 1 {
			http.Error(w, fmt.Sprintf("last=%q: expected a number of seconds, 1 or more", text), http.StatusBadRequest)
			return
		}
	}
	var text bytes.Buffer
	if err := x.WriteRates(&text, seconds); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Write(text.Bytes())
}
