package ec2sim

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"time"
)

// The shapes of EC2's answers: lists are <xSet><item>…</item></xSet>, an
// absent number or time has no element (an empty one breaks the SDK's parser).
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_Operations.html

const xmlNamespace = "http://ec2.amazonaws.com/doc/2016-11-15/"

// answer is what every success begins with.
type answer struct {
	RequestID string `xml:"requestId"`
}

func (a *answer) stamp(requestID string) { a.RequestID = requestID }

// stampable is an answer that can be sent.
type stampable interface{ stamp(requestID string) }

// set is a list that is sent as an empty element when it has no items.
type set[T any] struct {
	Items []T `xml:"item"`
}

type doneAnswer struct {
	answer
	Return bool `xml:"return"`
}

func done() *doneAnswer { return &doneAnswer{Return: true} }

// wireTime is EC2's form of a time, in milliseconds.
func wireTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// ptr is nil for the zero value, so that the element is left out.
func ptr[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func writeAnswer(w http.ResponseWriter, action, requestID string, a stampable) error {
	a.stamp(requestID)
	var buf bytes.Buffer
	buf.WriteString(xml.Header)
	start := xml.StartElement{
		Name: xml.Name{Local: action + "Response"},
		Attr: []xml.Attr{{Name: xml.Name{Local: "xmlns"}, Value: xmlNamespace}},
	}
	if err := xml.NewEncoder(&buf).EncodeElement(a, start); err != nil {
		return err
	}
	send(w, http.StatusOK, buf.Bytes())
	return nil
}

type errorAnswer struct {
	XMLName   xml.Name `xml:"Response"`
	Code      string   `xml:"Errors>Error>Code"`
	Message   string   `xml:"Errors>Error>Message"`
	RequestID string   `xml:"RequestID"`
}

func writeError(w http.ResponseWriter, requestID string, e *APIError) {
	body, _ := xml.Marshal(errorAnswer{Code: e.Code, Message: e.Message, RequestID: requestID}) // three strings always marshal
	send(w, e.status(), append([]byte(xml.Header), body...))
}

func send(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.Header().Set("Cache-Control", "no-cache, no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client has gone; nothing is left to tell it
}
