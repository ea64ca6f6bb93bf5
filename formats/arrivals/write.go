package arrivals

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats/csvfile"
	"inferplan/formats/document"
)

// WriteTrace writes a source as a request trace and returns the number of requests. columns names the columns to
// write besides the time t_us, of id, model, class, prompt_tokens, output_tokens, slo_us and client. Without any,
// the model is written if there are several.
func WriteTrace(w io.Writer, s Source, models []string, columns ...string) (n int64, err error) {
	if len(columns) == 0 && len(models) > 1 {
		columns = []string{"model"}
	}

	// Write the header, with the columns in the order that all traces have.
	var cols []int
	header := []string{"t_us"}
	for c, name := range traceNames {
		if c != colTime && slices.Contains(columns, name) {
			cols, header = append(cols, c), append(header, name)
		}
	}
	for _, name := range columns {
		if !slices.Contains(traceNames[:], name) {
			return 0, &document.Error{Found: fmt.Sprintf("the column %q", name), Expected: strings.Join(traceNames[:], ", ")}
		}
	}
	writer := csv.NewWriter(w)
	if err := writer.Write(header); err != nil {
		return 0, fmt.Errorf("writing a trace: %w", err)
	}

	// Write a row for every request.
	row := make([]string, len(header))
	var r Request
	for s.Next(&r) {
		row[0] = document.Micros(r.ArrivedAt).String()
		for k, c := range cols {
			row[k+1] = cellOf(&r, c, models)
		}
		if err := writer.Write(row); err != nil {
			return n, fmt.Errorf("writing a trace: %w", err)
		}
		n++
	}
	writer.Flush()
	if err := writer.Error(); err != nil {
		return n, fmt.Errorf("writing a trace: %w", err)
	}
	return n, Err(s)
}

// cellOf returns the text of a trace's column for request r. It is empty where the request has no such value, or
// its model is not in the list.
func cellOf(r *Request, column int, models []string) string {
	switch column {
	case colID:
		return r.ID
	case colModel:
		if int(r.Model) < len(models) {
			return models[r.Model]
		}
	case colClass:
		return r.Class
	case colClient:
		return r.Client
	case colPrompt:
		return strconv.Itoa(int(r.PromptTokens))
	case colOutput:
		return strconv.Itoa(int(r.OutputTokens))
	case colSLO:
		if r.SLO > 0 {
			return document.Micros(r.SLO).String()
		}
	}
	return ""
}

// WriteTraceFile writes a trace to a file whole or not at all, packed if path ends in .gz. The bytes depend on the
// requests alone. changed returns whether the file had other content before.
func WriteTraceFile(path string, s Source, models, columns []string, force ...document.Force) (n int64, changed bool, err error) {
	changed, err = csvfile.WriteFile(path, func(w io.Writer) error {
		n, err = WriteTrace(w, s, models, columns...)
		return err
	}, force...)
	return n, changed, err
}
