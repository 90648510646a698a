package ec2

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/holdfast-dev/holdfast/internal/ebs"
)

// Pages of EC2's lists: it refuses fewer than 5 entries and gives 1000 at most.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeSnapshots.html
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeVolumes.html
const (
	minPage = 5
	maxPage = 1000
	// maxChangesPage is the most of DescribeVolumesModifications.
	// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeVolumesModifications.html
	maxChangesPage = 500
)

// pagePosition says where a page begins: in EC2's page of a size behind a
// token, after some entries. CSI may ask for fewer entries than EC2 gives, and
// what it sees as one list may be several of EC2's, one after the other.
type pagePosition struct {
	list, size, skip int32
	token            string
}

// sizedFor gives a position that begins a list the size of EC2's pages: no
// larger than needed for limit entries, 0 for no limit. EC2 wants all pages of
// a list to have one size, so a position that goes on keeps its own.
func (p pagePosition) sizedFor(limit int32) pagePosition {
	switch {
	case p.size != 0:
	case limit > 0:
		p.size = min(max(limit, minPage), maxPage)
	default:
		p.size = maxPage
	}
	return p
}

// nextToken is EC2's token, nil for the first page.
func (p pagePosition) nextToken() *string {
	if p.token == "" {
		return nil
	}
	return aws.String(p.token)
}

// span is some of the entries of EC2's page.
type span struct{ from, to int }

// cut says which of EC2's entries at this position are answered, at most limit,
// 0 for all, and where the rest begins; nil where EC2 has no more.
func (p pagePosition) cut(entries int, token *string, limit int32) (span, *pagePosition) {
	part := span{min(int(p.skip), entries), entries}
	if limit > 0 && int(limit) < part.to-part.from {
		part.to = part.from + int(limit)
		return part, p.after(part.to)
	}
	return part, p.nextPage(token)
}

// after is the position behind some entries of the same page.
func (p pagePosition) after(entries int) *pagePosition {
	p.skip = int32(entries)
	return &p
}

// nextPage is the position of EC2's next page; nil where there is none.
func (p pagePosition) nextPage(token *string) *pagePosition {
	if aws.ToString(token) == "" {
		return nil
	}
	return &pagePosition{list: p.list, size: p.size, token: *token}
}

// String is the token that a caller gets.
func (p pagePosition) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%d.%d.%s", p.list, p.size, p.skip, p.token))
}

// parsePageToken reads what String wrote; the empty token is the zero position.
func parsePageToken(token string) (pagePosition, error) {
	if token == "" {
		return pagePosition{}, nil
	}
	wrong := fmt.Errorf("%w: %q", ebs.ErrInvalidToken, token)
	text, err := base64.RawURLEncoding.DecodeString(token)
	parts := strings.SplitN(string(text), ".", 4)
	if err != nil || len(parts) != 4 {
		return pagePosition{}, wrong
	}
	list, listErr := strconv.ParseInt(parts[0], 10, 32)
	size, sizeErr := strconv.ParseInt(parts[1], 10, 32)
	skip, skipErr := strconv.ParseInt(parts[2], 10, 32)
	if errors.Join(listErr, sizeErr, skipErr) != nil || list < 0 || size < minPage || size > maxPage || skip < 0 {
		return pagePosition{}, wrong
	}
	return pagePosition{list: int32(list), size: int32(size), skip: int32(skip), token: parts[3]}, nil
}

// collect goes on from a query's position through lists that follow each other
// until it has as many entries as are asked for, or as one page of EC2 may have.
// fetch answers at most limit entries at a position, and where the rest begins;
// nil after the last list.
func collect[T any](q ebs.VolumeQuery, lists int, fetch func(at pagePosition, limit int) ([]T, *pagePosition, error)) (entries []T, token string, err error) {
	at, err := parsePageToken(q.Token)
	if err != nil {
		return nil, "", err
	}
	if int(at.list) >= lists {
		return nil, "", fmt.Errorf("%w: %q", ebs.ErrInvalidToken, q.Token)
	}
	at = at.sizedFor(q.MaxEntries)
	wanted := maxPage
	if q.MaxEntries > 0 {
		wanted = min(int(q.MaxEntries), maxPage)
	}
	for {
		part, next, err := fetch(at, wanted-len(entries))
		if err != nil {
			return nil, "", err
		}
		entries = append(entries, part...)
		if next == nil {
			return entries, "", nil
		}
		if len(entries) == wanted {
			return entries, next.String(), nil
		}
		at = *next
	}
}
