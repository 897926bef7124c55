# SPDX-License-Identifier: Apache-2.0
"""Files as PyTorch and NumPy write them, made once with torch 2.13.0 and numpy 1.26.4.

``t`` below is ``(torch.arange(6).reshape(1, 2, 3).to(torch.bfloat16) * 0.25 - 1)``.
"""

import base64
import zlib


def _file(text):
    return zlib.decompress(base64.b85decode(text))


PICKLED = _file(
    'c-rldyG|T26ox$)cBA38qD!~sq**P)f|MqTP()*qgiSLIvW6MM7@6_fK0`#Lm8L;UqUqvvc>taw`#h;qM@o?cLqW'
    'kKU`xIn|L6EWUlacL<CFU_cX7L^X1p3g$%lo>K6B&RHBcrmN2~@Rt!uZK;U~3_1p{7LW!PonzGLEgC$qR^XWX>|C'
    'RJ9jQ==}}$rW&ms{P0#r18H+^54&czr*v}k1t1!fA~AVb*@RA4$#HSC{VeQ?2;QRRHZ!>r0e)11%Tv?SB1zb?cby'
    'k2H|SPnH68S)xlhcak_#*TPg#3h5BiLH&KD^(J&3~YN+Z=_i0$y_-CB<@5G&DP4fE|qWuGO4%>U5x_G3$bOU9tC*'
    'w&nNyf?E&TcZ+UFm#Q>wxy&gAR|d;ISr8X}xUJ>kyM>`F2T`%`ZH?ao29@D4`zpX|Qm#M+53D+}Cy$+m}2C>>i1)'
    'elP_$ym%*aK!~rV4lu8MkxOOyP=G7Lxa>c(eS$6W#QB(Qx%t4a9{mT|o8n0'
)
"""pickle.dumps({'open the drawer': t, 'close it': t[:, 1:]})"""

SAVED = _file(
    'c-p0vJ#W)M7{||c>I63=X?dyWP$5`?fYeS>Ck5JqL0&vG1R+HclI1!_W9q~``%+#cq)4ch`X%}`7?4_tnWYR&Y)n'
    'k7Y;YHYYdcB<=}Fefr~5zu-#vbwb4}wC0Hji2Xym{wFkG{3?ZCyBfsMlUmaQro(2R^e`xb$GBS{3N)5Y)=MvRFaq'
    'ATb<Y}uZmyKtjt*)1KzuIIS=PEkN?-j{e}r?CkU=Su`dwH*UX@)LhuK#2xJwuxw}!BL0p9^y3~qvT@^XspKVp_Im'
    'H%pN+oZ<>y6Llaw0*Av#=7Ib0jk!4~52{-C!8l!X_oo|q{f{x*Bp-h`Fv;$wqu>;TSz*9oGHm|W5%?!MD(X7Voq6'
    '_<N8tx)Sm+I(puTayHsZY79g<nKLpW4WD&VhSDIt$Mow_{*^2f7~NRh4QitN%VEO7Q;2*LReeIh9}@R89!~WL`IH'
    'YqQ&dU92jlNg(7h1z3BDzO%%FJr!UEtOWoYuQ7D!S5lR`6Ca)o+rrp}lwo(}+ZCR;@TW3lz-pwb7e!UMa|VF^(fu'
    'QE)IS8Eze*{tl@1=JiBEbAMKwwxsY-bw3I<Tu!|NX#<MW>d4+7Vq^j6N2{bsWyQ2*nD&8Or27eMi(00+nRplgu|d'
    '}GkI)vcDQ6#f%OT#_Y8tS%Kxva~E$#HHeLSrlbart1|^sxDW_s$3aV$cqm*^MoTmpkyd)z!`4h+z@&E9*nEQ4LBE'
    '3t}|d%+sA{1n`k}~<TxB;sB`0S!i_K!iBo66a0ABW;R?<~<X>12>z%kZT!&HZGcKl;;@WTxWh2_pA?=9Vg+J{=^v'
    'nq`rs!%K&)@o6qTKC3nTpNRtUv!u_%qSbe;DAB{=0wsPVv4bHQ4X({SDwIqpt'
)
"""torch.save({'context': t[0], 'mask': torch.tensor([True, False])}, file)"""

SAVED_BEFORE_1_6 = _file(
    'c-n1{&2G~`5XaYRCxN9cDW5In>zH1m#7dk*s!)Ycg|vc}aPb9M#@W_x7jMQpt^lc0F0Clfzyt6U&GYaGNF2JZ(*R'
    'QTu$ukv%y0fP6Z)OWKR<SUKR^7rx89u4H@|Fip8#q2bwbEEQ>Y>(gJY5DM5SPv1b^B5$OKV}K%}E2Oo4v$nGx~JS'
    'OhxxDm2(9;57V-5p}FGgbJs=ZC*)=Q00#A6bzLfK#e<je%-TX)JUZ$J|kEWsw|3|L5_*kEXc&iJdvXSMXFU69J>r'
    '?qb$)TGdvJrmnH1wj#MGGz4xWg!0}g1+Mv^SU9UUnxvfsygUXemXq+2E)wc+>cbssW(=)iiEpDH|&GX32E=7c9bj'
    '^0Nk;ug8RT3cswmF1b2unj)zMADzsE=SJHjd)C3#H`T!R>z>c&%2y+x7ZTkE@)T&Z|XddJ1>AbqaUS;{tvU;r<XF'
    '_?9W#hll@>Ux#vkPG0*<?sa<of!pnQus$O{nvpjO^5c^H1mWoro)t^~P%M4HYOF<W>7quqXjVyiCe!UHnNBWD^n%'
    'Vbi(E%!i)>v2c0r>B'
)
"""torch.save({'context': t[0].T, 'mask': torch.tensor([True, False]),
'f': torch.ones(2, dtype=torch.float16)}, file, _use_new_zipfile_serialization=False)"""

ARRAYS = _file(
    'c-n1`y=uci5QJ~fQ4)wr=XY=#6{%8$q_C?T$dDHZ=hGPpWXYUPU=@Kh@ege0$-AaY&gaI3r&t(v_G9Pk>SstI>Jw'
    'w8HF#8a%T=G6#@Te)Rld~D=^i}%aMm<+>s@C&4&WpP!8dh&iX5QCHzqX47Vj7<Qc}qciiDHg_bYomlI0`zyVHKa^'
    'nxtQ-u{B(P{L!ro7{$XNJue2uuLrq$=9vXm3Dzq+_PLfol~AKP$DGg_Z6FvV`{*6rl~4xd>Lv4H*>jlHlLQU&%-g'
    'Kp{VWBe<&<%5&'
)
"""pickle.dumps({'x': numpy.arange(4, dtype='>i2').reshape(2, 2, order='F'),
's': numpy.float64(1.5), 'o': collections.OrderedDict(a=1)})"""

ARRAYS_PROTOCOL_2 = _file(
    'c-l3M$qK?i5JV?2ZsWdwgQtMtQP8skIpma^B$J4OnOKtvn1kTO?YI0f9itXabwgLbKAR^H&me>xVQ`Vfhur3gjO;'
    'kutDP^UpVPIBcp_3IGp;DiZ;FcWyG4nS3oO3oNf_~zM&dJ2lnZKridWHn@2j1dqIyNmMg0cqqA_6xvo2`<fT79{`'
    'mW`fI=`8r{kY%IanYTyQo)*|=Qz&lrBxUs3jN@*Eqguk*Ymv4zSOnEV5{E^U5pgQL2ADN`qoE8'
)
"""pickle.dumps({'x': numpy.arange(4, dtype='f4')}, protocol=2)"""

ARRAYS_PROTOCOL_5 = _file(
    'c-m`VojQd90&1u9Fjh?I5y~sgEvVE>&M!*U12R*KGLxtDaL1<=<>w}qrlqA8O_@AJW10j5GH`HUU}&%hVh0e1fnk'
    'Belpa>FIY2t4q_Q9tsHul3&16bvNBfkZDH`6)J&ZO}{QUg9{sRG+@Mb8PlH|?g&D;ibhuf4Apt52;0H;AWYX'
)
"""pickle.dumps({'x': numpy.asfortranarray(numpy.arange(6, dtype='f4').reshape(2, 3))},
protocol=5)"""

PARAMETER = _file(
    'c-n1HJx{|h5Y1Pqlv1eJ*cii-Au6<;kPzw;@l}>A$VwB_7`bumIF*W2DN98`*)SVFfQ28%Pe5Ye+6ak(lk7X+J->'
    'T*rS<xuYa6S!B@<ENqCygyt7;DkJT3^0Q5K4DiX|56MJ3vwg2ZXg1e$qJaH@9wKL;01u&O$UvM@$>f=$tQE^!X1Q'
    'xm$C#<NYo--cfY_wQHxZfTr<ns6_;<^&y3k_jeR#3-6!krS439RNWaDwIe`F~Vs~!jv1Uz=oupXBg$=0q5LYaLWl'
    'AkjxV%ByadeV8V-}l5hD|V68b=I^j*<DhlZ71kE+Lmdv$iGlD$?;qs<V+FTEI05j<JJ+Ig8^#|Tj@0i!TQC4u%H!'
    'dW%u7T~AYyV;O&^5GQD^J!(E!9Z*nr|$XuP@b8)q;5`jwFl=yKh~J7z-Sqkx0VU4o6A?ewFM(^azpr1NW?nvj'
)
"""pickle.dumps(torch.nn.Parameter(torch.ones(2)))"""

ARRAYS_PROTOCOL_4 = _file(
    'c-m`VnL3{V0&1u9Fjh?I5zQ;jEvVE>&M!*U%Pq|*$xJLNO01mH!xLYWnw+0kTvAk;Try?ylpa>F!YMuMc_|Pjlc#tyv`%qmOq$X@C1{F<H={R8>y!-E9@dnS%7Rpo7N#_lDV-e<S>_%_n<;*NeqR5908Dr@luSwLbQXX(r@<abH~^8u6rgai9sqpqKuZ'
)
"""pickle.dumps({'x': numpy.arange(4, dtype='f4')}, protocol=4)"""
