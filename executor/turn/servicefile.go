package turn

import (
	"bytes"
	"encoding/json"
	"fmt"

	"inferplan/formats/document"
)

// WriteFile writes the service times (how long batches took) as one JSON document, completely or not at all, replacing
// an existing file. ReadServiceTimes reads it.
func (s *ServiceTimes) WriteFile(path string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("recording service times: %w", err)
	}
	if _, err := document.WriteBytes(path, append(data, '\n'), document.Force(true)); err != nil {
		return fmt.Errorf("recording service times: %w", err)
	}
	return nil
}

// ReadServiceTimes reads recorded service times from a file that WriteFile wrote, for a simulation. It returns an
// error for unknown fields or text behind the document.
func ReadServiceTimes(path string) (*ServiceTimes, error) {
	data, err := document.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading service times: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	s := &ServiceTimes{}
	if err := d.Decode(s); err != nil {
		return nil, &document.Error{File: path, Found: document.FaultOfJSON(err), Expected: "service times as 'plan serve --record' writes them"}
	}
	if d.More() {
		return nil, &document.Error{File: path, Found: "text after the document", Expected: "one JSON document"}
	}
	return s, nil
}
