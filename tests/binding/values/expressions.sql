-- Expressions over the columns of nasty.py, one a line. Each is total, and gives what plain DuckDB gives wherever that raises nothing.
-- A line with '-- total only' after it is not compared: DuckDB's versions differ, or it has no such expression.
$$it's$$
'1.5'::decimal(4,1)
'1e3'::double
'2020-01-01'::date
'5'::int
'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid
'true'::boolean
'x'
((i))
((i+1)*y)
(b+1)%3
(b+b)//(i+i)
(d-5)/2
(i*2)*z
(i+1)*(b-2)
(i+1)*2
(i+i)+(i+i)
(i=1)::int
(i>1)=(d>2)
(st).a
(tz at time zone 'Africa/Monrovia')::varchar
(tz at time zone 'Australia/Lord_Howe')::date
(tz at time zone 'Australia/Lord_Howe')::time
-(-(-b))
-(i+1)
-5
-9223372036854775808
-b
-d
-h
-i
-iv
-null
-ti
-u  -- total only
-x
-y
.5
0*(h+h)
0*h
0.05
1
1+1
1.
1.5
100*i/nullif(b,0)
1e3
2147483647+1
2^i
9223372036854775807
9223372036854775807+1
@i
abs(-b)
abs(b)
abs(d)
abs(h)
abs(i)
abs(null)
abs(u)
abs(y)
acos(d)
acosh(d)
array_contains(l,3)
array_length(ls)
ascii(s)
asin(d)
asinh(d)
atan(d)
atan2(d,d)
atanh(d)
b%7
b%b
b*1.5
b*b
b*b*b
b*interval 1 month
b+1
b+b
b//2
b//b
b//i
b::float
b::int
b=1.5
bit_count(b)
bit_count(i)
bit_count(u)
bit_length(s)
case i when 1 then 'one' when 7 then 'seven' else 'many' end
case when d>0 then f else i end
case when i=1 and d>2 or s='x' then lower(s) else upper(s2) end
case when i>0 then 1 else 2.5 end
case when i>0 then i else b end
case when i>0 then y else x end
case when i>1 then tz end is null
case when null then 1 end
case when p then d end
case when p then s else null end
cast(s as varchar(3))
cbrt(d)
ceil(b)
ceil(d)
ceil(z)
ceiling(y)
century(dt)
coalesce(d,0)
coalesce(dt,'2020-01-01')
coalesce(dt,ts)
coalesce(f,1.5)
coalesce(h,1.5)
coalesce(i,1.5)
coalesce(i,b,0)
coalesce(null,i)
coalesce(null,null)  -- total only
coalesce(p,false)
coalesce(s,'x')
coalesce(ti,-1)
coalesce(ti,1)
coalesce(ti,300)
coalesce(try_cast(s as double),0)
coalesce(tz,timestamptz '2024-01-01 00:00:00Z')=tz
coalesce(u,1)
coalesce(u,i)
coalesce(uti,-1)
concat(s,i,d)
concat(s,ts)
concat_ws('-',s,i,s2)
contains(s,s2)
cos(d)
cosh(d)
cot(d)
d is not null
d%d
d*d
d*y
d+1
d+h
d+uh
d-d
d//d
d/d
d::bigint
d::boolean
d::decimal(10,2)
d::float
d::int
d::varchar
date '2020-01-01'
date_add(dt,interval 1 day)
date_diff('day','2020-01-01',dt)
date_diff('day',dt,dt2)
date_diff('hour',ts,ts2)
date_diff('microsecond',ts,ts2)
date_diff('millisecond',dt,dt2)
date_diff('week',dt,dt2)
date_diff('year',dt,ts)
date_part('dow',ts)
date_part('epoch',ts)
date_part('year',dt)
date_sub('microsecond',ts,ts2)
date_sub('month',dt,dt2)
date_trunc('century',ts)
date_trunc('day',ts)
date_trunc('day',tss)
date_trunc('decade',ts)
date_trunc('hour',ts)
date_trunc('hour',tz at time zone 'Asia/Kolkata')
date_trunc('millennium',dt)
date_trunc('minute',dt)
date_trunc('month',dt)
date_trunc('quarter',ts)
date_trunc('week',dt)
date_trunc('week',tz at time zone 'Europe/Berlin')
date_trunc('year',ts)
datediff('month',dt,dt2)
datepart('month',dt)
day(ts)
dayname(dt)
dayofmonth(dt)
dayofweek(dt)
dayofyear(dt)
decade(ts)
degrees(d)
dt at time zone 'Asia/Tokyo'<tz
dt between '2020-01-01' and '2021-01-01'
dt in ('2020-02-29','1970-01-01')
dt+1
dt+b  -- total only
dt+i
dt+interval 1 day
dt+interval 1 month
dt+iv
dt+u  -- total only
dt-'2020-01-01'::date
dt-1
dt-dt2
dt-interval 1000 year
dt-ts
dt::timestamp
dt::varchar
dt<ts
dt='2020-02-29'
dt=dt2
dt=ts
dt>'2020-02-29'
ends_with(s,s2)
epoch(dt)
epoch(iv)
epoch(tm)
epoch(ts)
epoch(tz)
epoch_ms(b)
epoch_ms(dt)
epoch_ms(i)
epoch_ms(iv)
epoch_ms(tm)
epoch_ms(ts)
epoch_ms(tz)
era(dt)
even(d)
exp(b)
exp(d)
extract(dow from ts)
extract(epoch from dt)
extract(hour from tm)
extract(year from dt)
f*f
f+1
f+b
f+d
f+h
f-y
f//f
f/2
f/f
f/i
f::double
f::int
f::varchar
f=0.1
f=d
f=i
floor(d)
floor(f)
floor(i)
floor(null)
floor(w)
floor(x)
floor(y)
g::varchar
g='a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'
g=g
gamma(d)
gcd(i,b)
gcd(u,u)
greatest(dt,dt2)
greatest(i,b)
greatest(i,d,0)
greatest(null,i)
greatest(s,'m')
greatest(tz,'2024-01-01T00:00:00Z')>'2024-01-02T00:00:00Z'
greatest(uh,0)
h between 1 and 2.5
h in (1,2.5)
h%h
h*h
h*h*h
h+1
h+1.5
h-h
h//h
h::bigint
h::decimal(38,0)
h::float
h=1.5
h=z
h>x
hour(tm)
hour(ts)
hour(tz at time zone 'America/New_York')
i
i between 1 and 2.5
i in (1,2,5)
i in (1,2.5)
i in (null,1)
i is not distinct from b
i is null
i not between 0 and b
i not in (1,2)
i%i
i&b
i**2
i*2.5
i*i*i*i
i*y
i+1
i+i
i+null
i+y*d-b
i//0.5
i//i
i//null
i/2
i/i
i::bigint
i::boolean
i::double
i::tinyint
i::uint8
i::utinyint
i::varchar
i<>ti
i=1
i=d
i>2.5
if(p,dt,ts)
if(p,i,d)
ifnull(i,0)
instr(s,'x')
interval 1 day*i
interval 1 day*ceil(d)
interval 5 minute*floor(extract(minute from ts)/5)
isfinite(d)
isinf(f)
isnan(d)
isodow(ts)
isoyear(dt)
iv+dt
iv+iv
iv-iv
iv::varchar
iv=iv
iv>interval 1 day
i|u
jaro_similarity(s,'abc')
jaro_winkler_similarity(s,'abc')
l is null
l=l
l[-1]
l[0]
l[100]
l[1]
l[2]
last_day(dt)
last_day(ts)
lcase(s)
lcm(b,b)
lcm(i,b)
least(d,100)
least(greatest(d,0),100)
least(greatest(i,0),100)
least(ts,ts2)
left(s,-2)
left(s,2)
len(l)
len(s)
length(l)
length(s)
levenshtein(s,'abc')
lgamma(d)
list_contains(l,1)
list_contains(l,NULL)
list_contains(ls,'a')
ln(d)
ln(null)
ln(x)
log(2,d)  -- total only
log(d)
log(d,d)  -- total only
log10(i)
log2(d)
lower(null)
lower(s)
ls[1]
ls[1]||'x'
ltrim(s)
make_date(2020,ti,b)
make_date(i,1,1)
make_date(u,1,1)  -- total only
make_timestamp(2024,2,29,23,59,d)
make_timestamp(b)  -- total only
make_timestamp(i)
make_timestamp(i,si,ti,ti,ti,d)
make_timestamp(si,2,28,24,0,0.0)
md5(s)
microsecond(tm)
millennium(dt)
millisecond(ts)
minute(tm)
mod(d,0.5)
mod(i,3)
month(dt)
monthname(ts)
nfc_normalize(left(s, 5000))
not (i=1 or p)
not null
not p
null  -- total only
null and p
null is null
null+null  -- total only
null::int
null=1
nullif(d,i)
nullif(dt,ts)
nullif(i,0)
nullif(i,2.5)
nullif(s,'a')
nullif(tz,'2024-03-31T01:30:00Z') is null
nullif(x,1.5)
nullif(y,1.5)
null||'a'
ord(s)
p
p and i>1
p is not true
p is true
p or d>0 and not p
p::decimal(4,1)
p::double
p::int
p::varchar
p<>p
p=true
pi()
position('b' in s)
pow(d,2)
pow(d,d)
power(h,h)
prefix(s,'a')
quarter(dt)
radians(d)
regexp_extract(s,'([a-z])([0-9])?',1)
regexp_extract(s,'a')
regexp_full_match(s,'[0-9]{1,3}')
regexp_matches(s,'A','i')
regexp_matches(s,'^[a-z]+$')
regexp_replace(s,'(a)','<\1>','g')
regexp_replace(s,'a','b')
replace(s,'a','bb')
reverse(s)
right(s,-1)
right(s,3)
round(b,-5)
round(b,2)
round(d)
round(d,-3)
round(d,2)
round(d/3,2)
round(f)
round(f,1)
round(h,-3)
round(i)
round(i,-1)
round(i,-10)
round(null)
round(u)
round(u,-2)
round(ui,1)
round(uti)
round(uti,-1)
round(w,3)
round(x)
round(y)
round(y,1)
round(y,5)
round(z,-2)
round(z,2)
rtrim(s,'b')
s ^@ s2
s glob 'a*'
s ilike '%A%'
s in ('a','')
s is distinct from s2
s like 'a%'
s like 'x$%%' escape '$'
s not in ('a')
s not like 'a%'
s not like 'x$%%' escape '$'
s not similar to 'a'
s similar to 'a|b'
s::boolean
s::date
s::decimal(10,2)
s::double
s::float
s::hugeint
s::int
s::time
s::timestamp
s::uhugeint
s::uuid
s<s2
s='a'
second(ts)
sha1(s)
sha256(s)
si*i
si+70000
sign(d)
sign(i)
sign(null)
sign(u)
sign(y)
signbit(d)
sin(d)
sinh(d)
split_part(s,'b',-1)
split_part(s,'b',1)
sqrt(abs(d))
sqrt(d)
sqrt(i)
sqrt(null)
st is null
st."b c"
st.a
st.a+1
st.d[1]
st=st
st['a']
starts_with(s,'a')
strftime(dt,'%Y-%m-%d')
strftime(ts,'%Y-%m-%d %H:%M:%S.%f %j %U %p %a %B')
strftime(ts,'%c %x %X %G-%V %u')
strftime(tz at time zone 'Europe/Berlin','%Y-%m-%d %H')
strip_accents(s)
strlen(s)
strpos(s,'b')
strpos(s,s2)
substr(s,-3)
substr(s,0,5)
substr(s,2,-1)
substring(s,1,2)
suffix(s,'b')
s||NULL
s||dt
s||i
s||p
s||s2
s||ts
tan(d)
tanh(d)
ti*ti
ti+1
ti+ui
time '10:00'
time_bucket(interval 1 day,ts)
time_bucket(interval 1 month,dt)
time_bucket(interval 15 minute,tz at time zone 'Europe/Berlin')
time_bucket(interval 7 day,dt)
timestamp '2020-01-01 10:00'
timezone('Europe/Berlin',ts)
timezone('Europe/Berlin',tz)
tm::varchar
tm>'10:00'
tns  -- total only
tns::varchar  -- total only
tns>'2020-01-01'
to_timestamp(b)=tz
to_timestamp(d)<tz
to_timestamp(i) at time zone 'Europe/Berlin'
to_timestamp(y) at time zone 'UTC'
translate(s,'ab','c')
trim(leading 'a' from s)
trim(s)
trim(s,'a')
true
trunc(d)
trunc(f)
trunc(i)
trunc(y)
trunc(z)
try(b+1)
try(i+1)
try_cast(s as int)
try_strptime(s,'%Y-%m-%d')
ts at time zone 'America/St_Johns'=tz
ts at time zone 'UTC' at time zone 'Asia/Kathmandu'
ts+interval 1 hour
ts+interval 5 microsecond
ts+iv
ts-interval 1 century
ts-ts2
ts::date
ts::time
ts::varchar
ts::varchar||tm
ts<'2024-03-31T01:30:00Z'
ts=timestamp '2024-03-31 01:30:00Z'
ts>'2020-01-01 10:00:00'
ts>='2020-01-01'
tss  -- total only
tz at time zone 'America/New_York'
tz at time zone 'Pacific/Kiritimati'
tz at time zone 'UTC'
tz between '2024-03-31T01:00:00Z' and '2024-10-27T03:00:00+0100'
tz in ('2024-03-31T01:30:00Z','2024-10-27 00:30:00 UTC')
tz is not distinct from tz
tz is null
tz<timestamptz '2024-03-31 02:30:00+01:00'
u%i
u*i
u*interval 1 day
u*u
u*u*u
u+1.5
u+b
u+u
u-1
u//i
u//u
u::bigint
u::uint64
u=i
uh+1
uh+uh
uh-1
uh::double
uh::hugeint
uh=1
uh=u
unicode(s)
upper(s)
uti-1
w between 0 and x
w*w
w+0.5
w=h
w=x
week(dt)
week(ts)
weekday(dt)
weekofyear(dt)
x in (1,1.5)
x%y
x*x
x+1
x-w
x/2
x::bigint
x::double
x=1.5
x=w
xor(i,b)
y%i
y%y
y*y
y*y*y*y*y*y*y*y
y+i
y+y
y//y
y/y
y::boolean
y::int
y::varchar
y=d
year(dt)
year(dt)*12+month(dt)
year(null)  -- total only
year(tns)
year(ts)
yearweek(dt)
z*z
z*z*z
z+z
z::decimal(4,1)
z=b
regexp_matches(s,'[[:alpha:]]+[^[:digit:]]$')
regexp_matches(s,'(?i)^(?:A|b*?)\s.\(')
regexp_matches(s,'[]a-z-]{2,3}')
len([i, b, null])
i in [b, 3]
list_slice(l, 1, 2)
l[-2:-1]
[s, 'x'][1]
[d, i][1]
list_value(s, s)
l[-2:]
list_contains([i, b], 3)
string_split(s, 'b')
l[2:]
[i, b][2]
string_split(s, ',')[1:2]
array_slice(l, 0, 2)
l[:1]
l[1:2]
len(string_split(s, ''))
lpad(s, 5, '0')
rpad(s, 12, 'ab')
lpad(i::VARCHAR, 3, '0')
list_sum(l)
list_max(l)
list_min(l)
list_unique(l)
len(list_distinct(l))
list_position(l, 1)
list_position(ls, 'a')
list_has_any(l, [1, 2])
list_has_any(ls, ['a'])
list_has_all(l, [1])
list_has_all(l, l)
list_avg(l)
list_count(l)
list_first(l)
list_last(ls)
list_any_value(l)
list_filter(l, lambda x: x > 1)
list_filter(ls, lambda x: x LIKE 'a%' OR x = s)
list_transform(l, lambda x: x + 1)
list_transform(l, lambda x, j: x // j)
list_transform(ls, lambda x: x)
[one FOR one IN l IF one > 0]
list_sum([x * 2 FOR x IN l])
s->>'a'
s->'$.a'
json_extract_string(concat('{"a": "', replace(replace(left(s, 100), '"', ''), '\\', ''), '"}'), '$.a')
json_extract(concat('[', i::VARCHAR, ']'), '$[0]')::BIGINT
json_extract_string(s, '$[0]."b c"')
to_days(i)
to_months(3)
mp['a']
mp['a'] + 1
mp[s]
map_extract(mp, 'a')
map_extract_value(mp, s2)
map_contains(mp, 'b')
map_keys(mp)
map_values(mp)
cardinality(mp)
to_years(i)
to_decades(i)
to_quarters(i)
to_weeks(i)
to_hours(i)
to_minutes(i)
to_seconds(i)
to_milliseconds(i)
to_microseconds(i)
strptime(s, '%Y-%m-%d')
